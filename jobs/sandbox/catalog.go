package sandbox

import (
	"net/http"
	"net/url"
	"strings"
)

const apiPrefix = "/youtube/v3/"

// invalidUnits is what YouTube charges for an invalid request.
const invalidUnits = 1

// resource is something that can be listed.
type resource struct {
	singular string // as in kind: youtube#video, youtube#videoListResponse
	units    int64  // of one page of a list
}

// resources are the lists of the general pool, priced as until 2026-06-01, when search moved to a bucket of its own.
// Jobs that stay within these prices stay within the later ones.
var resources = map[string]resource{
	"activities":              {"activity", 1},
	"captions":                {"caption", 50},
	"channelSections":         {"channelSection", 1},
	"channels":                {"channel", 1},
	"commentThreads":          {"commentThread", 1},
	"comments":                {"comment", 1},
	"guideCategories":         {"guideCategory", 1},
	"i18nLanguages":           {"i18nLanguage", 1},
	"i18nRegions":             {"i18nRegion", 1},
	"members":                 {"member", 1},
	"membershipsLevels":       {"membershipsLevel", 1},
	"playlistItems":           {"playlistItem", 1},
	"playlists":               {"playlist", 1},
	"search":                  {"search", 100},
	"subscriptions":           {"subscription", 1},
	"videoAbuseReportReasons": {"videoAbuseReportReason", 1},
	"videoCategories":         {"videoCategory", 1},
	"videos":                  {"video", 1},
}

// priced is a request's price, and its answer if it is accepted.
type priced struct {
	units  int64
	answer answer
}

// resolve depends on nothing but its arguments: the same request has the same price and the same answer.
func resolve(method, path string, query url.Values, results int) priced {
	name, ok := strings.CutPrefix(path, apiPrefix)
	res, known := resources[name]
	if !ok || !known || method != http.MethodGet {
		return priced{invalidUnits, methodNotFound}
	}
	page, refusal := parsePage(name, query, results)
	if refusal != nil {
		return priced{invalidUnits, *refusal}
	}
	return priced{res.units, answer{status: http.StatusOK, value: page.response(res)}}
}
