"""What a second request can resume from: every candidate boundary of each group and the rule that removed it."""
