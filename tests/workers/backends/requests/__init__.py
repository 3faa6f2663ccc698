"""What translations of several recipes share."""
