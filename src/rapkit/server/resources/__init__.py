"""What a thread keeps between its calls: state, workspace, and their cleanup."""
