"""The JSONL backend: one folder per session, plain or zstd, byte-compatible with DeepSeek Harness."""
