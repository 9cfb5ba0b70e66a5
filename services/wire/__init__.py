"""Messages of topmast.v1 become values of the domain here, and back; nothing else knows both."""
