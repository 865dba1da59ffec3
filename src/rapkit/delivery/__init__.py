"""Getting a POST there: when to try again, whom to dial, how to send and how to sign."""
