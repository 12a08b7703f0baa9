package config_test

import (
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
)

// A key in the place of its variable's name is reported, not shown.
func TestVariableText(t *testing.T) {
	for _, name := range []string{"API_KEY", "_X", "KEY2", "A"} {
		if got := config.VariableText(name); got != name {
			t.Errorf("VariableText(%q) = %q", name, got)
		}
	}
	for _, secret := range []string{"ghp_0123456789abcdef", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "api_key", "AIzaSyA-1", "2KEY", "A B", ""} {
		got := config.VariableText(secret)
		if secret != "" && strings.Contains(got, secret) || !strings.Contains(got, "not in capitals") {
			t.Errorf("VariableText(%q) = %q", secret, got)
		}
	}
}
