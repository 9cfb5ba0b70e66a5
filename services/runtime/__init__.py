"""How the tiers come to life: as Ray actors of one machine (`topmast up`), or as processes (`topmast serve`)."""
