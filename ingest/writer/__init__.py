"""The writer: a LoRA that is active only while chunks are prefilled, trained so that their KV can be stitched."""
