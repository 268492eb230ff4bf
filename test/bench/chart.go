package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Colours of the chart, each of which can be read on white and on nearly black: the background stays the page's.
const (
	colourText  = "#7a828c"
	colourOurs  = "#d9701f"
	colourOther = "#7d9bbf"
	colourRange = "#5f6875"
)

// Sizes in the chart, in pixels.
const (
	chartWidth  = 880
	chartNames  = 180 // of the contestants
	chartPanel  = 340 // one of two beside each other
	chartBar    = 14
	chartLine   = 20
	chartHeader = 34
	chartFigure = 90 // right of the longest bar, for the figure
)

// panel is one column of bars of a workload.
type panel struct {
	title string
	of    func(result) float64
}

// chart draws the medians of every workload as bars, rates on the left and CPU time on the right, with a line from the
// least to the greatest of the runs, of all contestants or of those that only names. It is nil for a series.
func (r *report) chart(only ...string) []byte {
	if r.Kind != kindPeers {
		return nil
	}
	var body bytes.Buffer
	y := 0
	for _, w := range r.workloads() {
		y = r.chartWorkload(&body, w, only, y)
	}
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n", chartWidth, y+24, chartWidth, y+24, colourText)
	_, _ = fmt.Fprintf(&b, "<title>%s</title>\n", escape(r.Command))
	_, _ = b.Write(body.Bytes())
	note := "Medians; the thin line is from the least to the greatest run. " + r.Machine
	if bytes.Contains(body.Bytes(), []byte(" *</text>")) {
		note += ". * disturbed by other processes"
	}
	text(&b, 4, y+14, "start", "", note)
	_, _ = b.WriteString("</svg>\n")
	return b.Bytes()
}

// chartWorkload draws one workload from y on, and returns where it ends.
func (r *report) chartWorkload(w io.Writer, workload string, only []string, y int) int {
	var names []string
	var counted [][]result
	for _, c := range r.contestantsIn(workload) {
		if len(only) > 0 && !slices.Contains(only, c) {
			continue
		}
		runs, disturbed := r.counted(workload, c)
		if disturbed {
			c += " *"
		}
		names, counted = append(names, c), append(counted, runs)
	}
	if len(counted) == 0 {
		return y
	}
	per := counted[0][0].per()
	if per == "10k" {
		per = "10 000 requests"
	}
	better := "more is better"
	if counted[0][0].sign() < 0 {
		better = "less is better"
	}
	panels := []panel{
		{title(workload) + " (" + better + ")", rate},
		{"CPU seconds per " + per + " (less is better)", cpuTime},
	}
	y += 8
	for i, p := range panels {
		x := chartNames + i*(chartPanel+10)
		text(w, x, y+16, "start", "bold", p.title)
		most := 0.0
		for _, runs := range counted {
			most = max(most, spreadOf(pick(runs, p.of)).max)
		}
		for j, runs := range counted {
			top := y + chartHeader - 8 + j*chartLine
			if i == 0 {
				weight := ""
				if ours(names[j]) {
					weight = "bold"
				}
				text(w, chartNames-8, top+11, "end", weight, names[j])
			}
			s := spreadOf(pick(runs, p.of))
			if s.max == 0 { // the origin, whose CPU time is the benchmark's own
				continue
			}
			bar(w, x, top, s, most, names[j], figure(s.median))
		}
	}
	return y + chartHeader + len(counted)*chartLine
}

// bar draws a bar as long as the median of s is to most.
func bar(w io.Writer, x, y int, s spread, most float64, name, figure string) {
	scale := (chartPanel - chartFigure) / most
	colour := colourOther
	if ours(name) {
		colour = colourOurs
	}
	_, _ = fmt.Fprintf(w, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>`+"\n",
		x, y, max(1, s.median*scale), chartBar, colour)
	from, to := float64(x)+s.min*scale, float64(x)+s.max*scale
	_, _ = fmt.Fprintf(w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="2"/>`+"\n",
		from, y+chartBar/2, to, y+chartBar/2, colourRange)
	text(w, int(to)+6, y+11, "start", "", figure)
}

// ours says whether a contestant is ashlar.
func ours(name string) bool {
	return strings.HasPrefix(name, "ashlar") || strings.HasPrefix(name, "gateway")
}

func text(w io.Writer, x, y int, anchor, weight, s string) {
	if weight != "" {
		weight = fmt.Sprintf(` font-weight="%s"`, weight)
	}
	_, _ = fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, weight, escape(s))
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer takes everything
	return b.String()
}
