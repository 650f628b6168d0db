"""What a user sees of the decisions taken."""
