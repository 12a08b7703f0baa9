package presets_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

// composed is a configuration of presets, which must have neither errors nor warnings.
func composed(t *testing.T, names, only []string) (*config.Config, string) {
	t.Helper()
	text := must.Get(presets.Compose(names, only))(t)
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, text, 0o600))
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatalf("%v, only %v: %v\n%s", names, only, err, text)
	}
	for _, w := range cfg.Warnings() { // of few operations some limits never bind
		if len(only) == 0 || !strings.Contains(w.Error(), "never binds") && !strings.Contains(w.Error(), "leave per out") {
			t.Errorf("%v, only %v: %v", names, only, w)
		}
	}
	return cfg, string(text)
}

// specOf is what a configuration says of a preset's budget.
func specOf(t *testing.T, cfg *config.Config, preset string) budget.Spec {
	t.Helper()
	upstream, _, _ := strings.Cut(preset, "-")
	if names := cfg.Budgets(); len(names) > 0 {
		return must.Get(cfg.Spec(names[0]))(t)
	}
	return must.Get(cfg.Spec(upstream + "/main"))(t)
}

// operationsOf are the operations of a preset's upstream.
func operationsOf(t *testing.T, preset string) (operations []string) {
	t.Helper()
	cfg, _ := composed(t, []string{preset}, nil)
	for operation := range specOf(t, cfg, preset).Costs {
		operations = append(operations, operation)
	}
	slices.Sort(operations)
	return operations
}

// Any operations of a preset make a configuration without errors, in which they cost
// what they cost in the whole.
func TestComposeOnlySome(t *testing.T) {
	rng := rand.New(rand.NewPCG(effort.Seed(t), 1))
	for _, preset := range presets.Names() {
		all := operationsOf(t, preset)
		for range effort.Of(5, 20, 100) {
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			only := all[:1+rng.IntN(min(6, len(all)))]
			cfg, text := composed(t, []string{preset}, only)
			spec := specOf(t, cfg, preset)
			must.Equal(t, len(spec.Costs), len(only), preset, only, text)
			for _, operation := range only {
				if _, ok := spec.Costs[operation]; !ok {
					t.Fatalf("%s, only %v: %s has no price:\n%s", preset, only, operation, text)
				}
			}
		}
	}
}

// Several presets make one configuration, with one store and one sample job.
func TestComposeSeveral(t *testing.T) {
	names := slices.DeleteFunc(presets.Names(), func(name string) bool { return name == "youtube-2025" })
	cfg, text := composed(t, names, nil)
	for _, name := range []string{"youtube/key1", "github/user1", "slack/main", "shopify/main", "openai/team", "strava/app"} {
		_, err := cfg.Spec(name)
		check.NoError(t, err, name)
	}
	check.Equal(t, strings.Count(text, "[store]"), 1, "stores")
	check.Equal(t, strings.Count(text, "[job.nightly]"), 1, "sample jobs")
	for _, wrong := range [][]string{{"youtube", "youtube"}, {"youtube", "youtube-2025"}, {"nothing"}} {
		_, err := presets.Compose(wrong, nil)
		check.Equal(t, err != nil, true, wrong, "is an error")
	}
	short, _ := presets.Compose([]string{"youtube"}, []string{"search.list", "videos.list"})
	check.Equal(t, strings.Count(string(short), "\n") < 120, true, "is short:\n", string(short))
}
