"""Arms the moments of the environment in every Python process that has this folder on its path, a Ray worker's too."""

import os

import moments

if os.environ.get(moments.MOMENTS):
    moments.arm(os.environ[moments.MOMENTS])
