"""How the tiers come to life: in a process or as Ray actors of one machine (`topmast up`), or as processes (`topmast serve`)."""
