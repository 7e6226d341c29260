"""From a lab's recording to its views: messages, their times, and their browser halves."""
