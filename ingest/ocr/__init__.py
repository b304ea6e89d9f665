"""OCR: the text of pictures, by models that lie on this disk. Loaded by the fork server of the sandbox alone."""
