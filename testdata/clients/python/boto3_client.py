import boto3

import scenarios


def tables():
    database = boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key="an-example")
    pages = database.get_paginator("list_tables").paginate()
    return f"{sum(len(page['TableNames']) for page in pages)} tables"


scenarios.run(globals())
