package sandbox

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// presentation are the parameters that say how a listing is shown, not what is in it.
var presentation = strings.Fields("id pageToken maxResults part fields alt prettyPrint")

// filters are the parameters by which YouTube's lists choose what is in them.
var filters = strings.Fields(`
	allThreadsRelatedToChannelId categoryId channelId channelType chart eventType filterByMemberChannelId
	forChannelId forContentOwner forDeveloper forHandle forMine forUsername hasAccessToLevel hl home location
	locationRadius managedByMe maxHeight maxWidth mine mode moderationStatus mySubscribers myRating
	myRecentSubscribers order parentId playlistId publishedAfter publishedBefore q regionCode relatedToVideoId
	relevanceLanguage safeSearch searchTerms textFormat topicId type videoCaption videoCategoryId videoDefinition
	videoDimension videoDuration videoEmbeddable videoId videoLicense videoPaidProductPlacement videoSyndicated
	videoType`)

// shownOf returns the part of a query that may be logged. A key may be sent under any name, even by mistake, so only
// parameters that are known to contain none are kept, by their exact names.
func shownOf(query url.Values) url.Values {
	shown := filtersOf(query)
	maps.Copy(shown, only(query, presentation))
	return shown
}

// filtersOf returns the part of a query that decides a listing's content, and that may be shown in it.
func filtersOf(query url.Values) url.Values { return only(query, filters) }

func only(query url.Values, names []string) url.Values {
	kept := url.Values{}
	for name, values := range query {
		if slices.Contains(names, name) {
			kept[name] = values
		}
	}
	return kept
}
