"""What `rapkit demo` copies into its folder, and what its tool servers and its scripted model read there."""
