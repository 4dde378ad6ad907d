"""What editors need: a VS Code extension, and the grammar that is made for it."""
