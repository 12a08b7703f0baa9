import stripe

import scenarios

stripe.api_key = "sk_test_example"
stripe.api_base = "https://api.stripe.invalid"


def customers():
    found = sum(1 for _ in stripe.Customer.list(limit=1).auto_paging_iter())
    stripe.Customer.create(email="a@example.com")
    return f"{found} customers, 1 created"


scenarios.run(globals())
