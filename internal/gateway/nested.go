package gateway

import (
	"net/http"
)

// aboutPath is asked by a meter within this one.
const aboutPath = "/quotactl"

// chargedHeader names a charge that a Transport of budgethttp made for its request.
const chargedHeader = "X-Quotactl-Charged"

func (f *front) about(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }

type once struct{}

func (h *handler) isCharged(req *http.Request, c *call) bool { return false }
