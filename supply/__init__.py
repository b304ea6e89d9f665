"""Supply chain: the locked lists, their licences, and the bill of materials. Not part of the installed service."""
