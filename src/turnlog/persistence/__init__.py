"""The seam between live sessions and storage."""
