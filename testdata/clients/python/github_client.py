import github

import scenarios


def issues():
    repository = github.Github("an-example").get_repo("octo/hello")
    return f"{sum(1 for _ in repository.get_issues())} issues"


scenarios.run(globals())
