"""TransCF with learned neighbourhoods or a learned translation, trained with torch.

`settings` needs no torch, nor do `scores` and `learned`, so that saved models serve without it.
"""
