"""The tool server: turns functions into durable tools."""
