"""What rapkit is compared with."""
