"""What a person reads: terminal tables, Markdown and JSON."""
