// Package gateway meters programs that know nothing of quotactl: a proxy on this machine
// opens their calls to the upstreams of costs.toml, and charges each before it leaves. [Start]
// starts it for one command; quotactl meter uses it.
package gateway
