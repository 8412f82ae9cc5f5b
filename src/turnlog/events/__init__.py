"""Pure vocabulary, envelope, lossless JSON, packed chunk runs and the frame codec."""
