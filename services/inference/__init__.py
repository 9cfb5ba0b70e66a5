"""The inference side of clusters that lend machines to training: how it is asked, and two that can be asked (Lyra §2.1)."""
