"""Who is calling, what they may do, and how calls are kept from others."""
