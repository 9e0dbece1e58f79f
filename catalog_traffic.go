package webhook

// TrafficEvents returns the traffic event types, a second ready-made set, for
// [Catalog.Add]. Of the three link types that [DefaultCatalog] has too, they give
// the description and the sample if they are added later.
func TrafficEvents() []EventType {
	const click = `"link_id":91834,"short_url":"https://eli.do/spring-sale","destination_url":"https://shop.example.com/spring",` +
		`"click_id":"clk_01K5N3V8R2","ip_prefix":"203.0.113.0/24","country":"DE","city_geoname_id":2950159,` +
		`"user_agent_family":"Firefox","device_type":"mobile","os_family":"Android","referrer":"https://news.example.org/",` +
		`"utm_source":"newsletter","utm_medium":"email","utm_campaign":"spring","utm_term":null,"utm_content":null`
	const link = `{"id":91834,"slug":"spring-sale","short_url":"https://eli.do/spring-sale",` +
		`"destination_url":"https://shop.example.com/spring","domain":"eli.do","tags":["spring","mail"],` +
		`"created_at":"2026-09-21T09:14:02.481375Z","created_by":1187}`
	return []EventType{
		{Name: "click", Description: "A short link was clicked.", Sample: sample(`{` + click + `}`)},
		{Name: "bio.click", Description: "A link on a bio page was clicked.", Sample: sample(`{"bio_id":512,` + click + `}`)},
		{Name: "qr.scan", Description: "The QR code of a link was scanned.", Sample: sample(`{"qr_id":77,` + click + `}`)},
		{Name: "conversion", Description: "A click led to a conversion.", Sample: sample(
			`{"click_id":"clk_01K5N3V8R2","link_id":91834,"conversion_id":"cnv_01K5N4A7QX","value":49.50,"currency":"EUR",` +
				`"event_name":"purchase","product_id":"sku-1042","metadata":{"coupon":"SPRING"},` +
				`"attribution_window_minutes":43200,"forwarded_to":["meta","google_ads"]}`)},
		{Name: "link.created", Description: "A link was created, alone or in bulk.", Form: true, Ticked: true,
			Sample: sample(`{"link":` + link + `}`)},
		{Name: "link.updated", Description: "A link changed; previous is what it was before.", Form: true, Ticked: true,
			Sample: sample(`{"link":` + link + `,"previous":{"id":91834,"slug":"spring-sale","short_url":"https://eli.do/spring-sale",` +
				`"destination_url":"https://shop.example.com/winter","domain":"eli.do","tags":["winter"],` +
				`"created_at":"2026-09-21T09:14:02.481375Z","created_by":1187}}`)},
		{Name: "link.deleted", Description: "A link was deleted.", Form: true, Ticked: true, Sample: sample(`{"link":` + link + `}`)},
		{Name: "bio.published", Description: "A bio page was published.", Sample: sample(
			`{"bio_id":512,"slug":"mara","url":"https://eli.do/@mara","title":"Mara","published_at":"2026-09-21T09:14:02Z"}`)},
		{Name: "daily.summary", Description: "The figures of a day.", Sample: sample(
			`{"date":"2026-09-20","clicks":18233,"unique_clicks":15120,"conversions":214,"links_created":12,` +
				`"top_links":[{"link_id":91834,"slug":"spring-sale","clicks":6120}]}`)},
		{Name: "campaign.ended", Description: "A campaign came to its end.", Sample: sample(
			`{"campaign_id":58,"name":"Spring","started_at":"2026-08-21T00:00:00Z","ended_at":"2026-09-21T00:00:00Z",` +
				`"clicks":120455,"conversions":1840}`)},
		{Name: "alert.threshold_exceeded", Description: "A figure went beyond the threshold of an alert.", Sample: sample(
			`{"alert_id":31,"metric":"clicks_per_hour","threshold":5000,"value":7312,"link_id":91834}`)},
		{Name: "quota.warning", Description: "Most of a quota is used up.", Sample: sample(
			`{"quota":"clicks","used":900000,"limit":1000000,"percent":90,"period_ends_at":"2026-10-01T00:00:00Z"}`)},
	}
}
