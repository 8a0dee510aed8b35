package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// result is one measured number. Reference is the bare twin that was measured in the same run,
// Ratio value over reference; both are absent where the target is an absolute number.
type result struct {
	Name      string   `json:"name"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Reference *float64 `json:"reference"`
	Ratio     *float64 `json:"ratio"`
	Target    string   `json:"target"`
	Met       bool     `json:"met"`
}

// atLeast is a result that should be no less than factor times the reference.
func atLeast(name string, value, reference float64, unit string, factor float64) result {
	ratio := value / reference
	return result{Name: name, Value: value, Unit: unit, Reference: &reference, Ratio: &ratio,
		Target: fmt.Sprintf("≥ %.2f × reference", factor), Met: ratio >= factor}
}

// atMostTimes is a result that should be no more than factor times the reference.
func atMostTimes(name string, value, reference float64, unit string, factor float64) result {
	ratio := value / reference
	return result{Name: name, Value: value, Unit: unit, Reference: &reference, Ratio: &ratio,
		Target: fmt.Sprintf("≤ %.2f × reference", factor), Met: ratio <= factor}
}

// within is a duration that should be no more than limit; reference 0: none.
func within(name string, value, limit, reference time.Duration) result {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	r := result{Name: name, Value: ms(value), Unit: "ms", Target: fmt.Sprintf("≤ %s ms", number(ms(limit))), Met: value <= limit}
	if reference > 0 {
		ref, ratio := ms(reference), float64(value)/float64(reference)
		r.Reference, r.Ratio = &ref, &ratio
	}
	return r
}

// atMost is a number that should be no more than limit.
func atMost(name string, value, limit float64, unit string) result {
	return result{Name: name, Value: value, Unit: unit, Target: fmt.Sprintf("≤ %s %s", number(limit), unit), Met: value <= limit}
}

func writeJSON(path string, all []result) error {
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func printTable(w io.Writer, all []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tvalue\treference\tratio\ttarget\tmet\t")
	for _, r := range all {
		reference, ratio, met := "–", "–", "no"
		if r.Reference != nil {
			reference, ratio = number(*r.Reference), strconv.FormatFloat(*r.Ratio, 'f', 2, 64)
		}
		if r.Met {
			met = "yes"
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\t\n", r.Name, number(r.Value), r.Unit, reference, ratio, r.Target, met)
	}
	return t.Flush()
}

// number prints three significant places below a thousand and groups digits above.
func number(x float64) string {
	if x < 1000 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	s := strconv.FormatFloat(x, 'f', 0, 64)
	var b strings.Builder
	for i, d := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// median of values, which it sorts.
func median[T cmp.Ordered](values []T) T { return percentile(values, 50) }

// percentile p (nearest rank) of values, which it sorts.
func percentile[T cmp.Ordered](values []T, p int) T {
	slices.Sort(values)
	return values[max((len(values)*p+99)/100, 1)-1]
}

// interleave measures subject and reference in turns, so that a machine that slows down slows
// both, and returns the median of each.
func interleave(rounds int, subject, reference func() (float64, error)) (s, r float64, err error) {
	var ss, rs []float64
	for range rounds {
		for _, m := range []struct {
			run  func() (float64, error)
			into *[]float64
		}{{reference, &rs}, {subject, &ss}} {
			v, err := m.run()
			if err != nil {
				return 0, 0, err
			}
			*m.into = append(*m.into, v)
		}
	}
	return median(ss), median(rs), nil
}
