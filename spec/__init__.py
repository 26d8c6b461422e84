"""What must hold (laws), what went wrong in the past (faults), and the engines that check."""
