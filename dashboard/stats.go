package dashboard

import (
	"slices"
	"time"

	"github.com/elido-app/webhook"
)

// What a page costs must not grow with the log: the newest deliveries are looked at,
// so many of them, or as many as have payloads of so many bytes together.
const (
	statsMost  = 500
	statsBytes = 8 << 20
	statsPage  = 50
)

// ranges are the times that can be looked at.
var ranges = []struct {
	name   string
	length time.Duration
	column time.Duration
	form   string // of the time at a column's beginning
}{
	{"hour", time.Hour, 2 * time.Minute, "15:04"},
	{"day", 24 * time.Hour, 30 * time.Minute, "15:04"},
	{"week", 7 * 24 * time.Hour, 4 * time.Hour, minuteForm},
}

// stats is how an endpoint did over a time.
type stats struct {
	Ranges  []rangeLink
	Columns []column
	From    string
	Until   string
	Zone    string

	Total     int
	Delivered int
	Failed    int
	Pending   int
	Rate      string // of success, "" if nothing ended
	Bad       bool   // and it is low
	Median    string // latency; "" without an answer
	P95       string
	Scale     string // what the top of the latency chart stands for
	Summary   [2]string
	CutOff    bool // there were more deliveries than are looked at
	Width     int  // of the charts, in their own units
}

type rangeLink struct {
	Name, URL string
	Current   bool
}

// column is a stretch of time in the charts.
type column struct {
	X                          int // its left edge
	Delivered, Failed, Pending int
	Good, Bad                  int // heights, percent of the chart
	BadTop                     int
	Median, P95                int // heights
	MedianTop, P95Top          int
	Empty                      bool

	From, Until string
	Rate        string
	MedianText  string
	P95Text     string
	Label       string
	LatencyText string

	latencies []time.Duration
}

const (
	columnWidth = 10
	chartHeight = 100
)

// stats reads the log for the charts.
func (v *visit) stats(endpointID int64) (stats, error) {
	chosen := 1
	for i, r := range ranges {
		if v.r.URL.Query().Get("range") == r.name {
			chosen = i
		}
	}
	span := ranges[chosen]
	end := v.now.Truncate(span.column).Add(span.column)
	start := end.Add(-span.length)
	s := stats{Zone: v.zone(), Columns: make([]column, span.length/span.column)}
	s.Width = len(s.Columns) * columnWidth
	s.From, s.Until = v.minute(start), v.minute(end)
	for i, r := range ranges {
		s.Ranges = append(s.Ranges, rangeLink{v.lang.t("stats." + r.name), v.endpointPath(endpointID, "?range="+r.name), i == chosen})
	}
	var latencies []time.Duration
	q := webhook.DeliveryQuery{WorkspaceID: v.workspace, EndpointID: endpointID, Since: start, Limit: statsPage}
	for size := 0; ; {
		page, err := v.d.Deliveries(v.r.Context(), q)
		if err != nil {
			return s, err
		}
		for i := range page.Deliveries {
			d := &page.Deliveries[i]
			at := min(max(int(d.CreatedAt.Sub(start)/span.column), 0), len(s.Columns)-1)
			latencies = s.count(&s.Columns[at], d, latencies)
			size += len(d.Payload) + len(d.Message)
		}
		if page.Next == "" {
			break
		}
		if s.Total >= statsMost || size >= statsBytes {
			s.CutOff = true
			break
		}
		q.Cursor = page.Next
	}
	slices.Sort(latencies)
	s.Rate = v.lang.share(s.Delivered, s.Delivered+s.Failed)
	s.Bad = s.Failed > 0 && s.Delivered < 19*s.Failed // less than 95%
	if len(latencies) > 0 {
		s.Median, s.P95 = v.lang.latency(quantile(latencies, 50)), v.lang.latency(quantile(latencies, 95))
	}
	v.draw(&s, start, span.column, span.form)
	s.Summary = [2]string{
		v.lang.t("stats.rate-summary", "delivered", s.Delivered, "failed", s.Failed, "pending", s.Pending, "rate", orDash(s.Rate)),
		v.lang.t("stats.latency-summary", "median", orDash(s.Median), "p95", orDash(s.P95)),
	}
	return s, nil
}

// count adds a delivery to the whole and to its column.
func (s *stats) count(c *column, d *webhook.Delivery, latencies []time.Duration) []time.Duration {
	s.Total++
	switch d.Status {
	case webhook.StatusDelivered:
		s.Delivered++
		c.Delivered++
	case webhook.StatusFailed:
		s.Failed++
		c.Failed++
	default:
		s.Pending++
		c.Pending++
	}
	if d.LastStatus == 0 { // nobody answered, so nobody took their time
		return latencies
	}
	c.latencies = append(c.latencies, d.LastLatency)
	return append(latencies, d.LastLatency)
}

// draw works out the columns' heights and texts.
func (v *visit) draw(s *stats, start time.Time, length time.Duration, form string) {
	var top time.Duration
	for i := range s.Columns {
		slices.Sort(s.Columns[i].latencies)
		top = max(top, quantile(s.Columns[i].latencies, 95))
	}
	top = scale(top)
	s.Scale = v.lang.latency(top)
	for i := range s.Columns {
		c := &s.Columns[i]
		c.X = i * columnWidth
		from := start.Add(time.Duration(i) * length)
		c.From, c.Until = from.In(v.location).Format(form), from.Add(length).In(v.location).Format("15:04")
		ended := c.Delivered + c.Failed
		c.Empty = ended == 0
		c.Rate = v.lang.share(c.Delivered, ended)
		if ended > 0 {
			c.Bad = chartHeight * c.Failed / ended
			if c.Failed > 0 { // to be seen
				c.Bad = max(c.Bad, 4)
			}
			c.Good = chartHeight - c.Bad
			if c.Delivered > 0 {
				c.Bad = min(c.Bad, chartHeight-4)
				c.Good = chartHeight - c.Bad
			}
		}
		c.Label = v.lang.t("stats.column", "from", c.From, "until", c.Until, "delivered", c.Delivered, "failed", c.Failed, "pending", c.Pending)
		if len(c.latencies) == 0 {
			continue
		}
		median, p95 := quantile(c.latencies, 50), quantile(c.latencies, 95)
		c.MedianText, c.P95Text = v.lang.latency(median), v.lang.latency(p95)
		c.Median, c.P95 = height(median, top), height(p95, top)
		c.MedianTop, c.P95Top = chartHeight-c.Median, chartHeight-c.P95
		c.LatencyText = v.lang.t("stats.column-latency", "from", c.From, "until", c.Until, "median", c.MedianText, "p95", c.P95Text)
	}
}

// height is that of a latency in a chart; never nothing, which is no answer.
func height(d, top time.Duration) int { return max(int(chartHeight*d/top), 2) }

// scale returns the next of 1, 2, 5, 10, 20 … milliseconds.
func scale(d time.Duration) time.Duration {
	for top := time.Millisecond; ; top *= 10 {
		switch {
		case d <= top:
			return top
		case d <= 2*top:
			return 2 * top
		case d <= 5*top:
			return 5 * top
		}
	}
}

// quantile returns the value below or at which so many percent of a sorted list
// are (the nearest rank); zero of none.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((percent*len(sorted)+99)/100, 1)-1]
}

func (v *visit) minute(t time.Time) string { return t.In(v.location).Format(minuteForm) }

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}
