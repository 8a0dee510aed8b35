package consumer

// handledBatches is how many batches of handled entries an ownership remembers, so that it can
// acknowledge again what a node has lost the acknowledgement of (rule D8).
const handledBatches = 64

// handled remembers the newest acknowledged entries of one ownership.
type handled struct {
	batches [handledBatches][]string
	next    int
}

func (h *handled) add(ids []string) {
	if len(ids) == 0 {
		return
	}
	h.batches[h.next] = ids
	h.next = (h.next + 1) % handledBatches
}

// set is what is remembered.
func (h *handled) set() map[string]bool {
	all := map[string]bool{}
	for _, b := range h.batches {
		for _, id := range b {
			all[id] = true
		}
	}
	return all
}
