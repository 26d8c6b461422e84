"""What crosses from the device pool to the host pool and back: stores, handoffs, loads (T20, T23 to T30, T33, T34)."""
