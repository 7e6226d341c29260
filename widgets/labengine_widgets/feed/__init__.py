"""From a lab's recording to its views: what is sent, when, and to which browser halves."""
