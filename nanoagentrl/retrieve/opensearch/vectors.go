package opensearch

import "fmt"

// embedAll encodes texts and makes sure that what comes back can be used. A dimension of 0 is that of the first vector.
func embedAll(embed Embed, texts []string, dimension int) ([][]float32, error) {
	vectors, err := embed(texts)
	if err != nil {
		return nil, fmt.Errorf("encoding %d texts: %w", len(texts), err)
	}
	if len(vectors) != len(texts) {
		return nil, fmt.Errorf("the encoder gave %d vectors for %d texts", len(vectors), len(texts))
	}
	for _, v := range vectors {
		if dimension == 0 {
			dimension = len(v)
		}
		if len(v) != dimension || dimension == 0 {
			return nil, fmt.Errorf("the encoder gave a vector of %d components, the others have %d", len(v), dimension)
		}
	}
	return vectors, nil
}

// nearest is the query for the topk passages whose vectors have the largest inner products with a vector.
func nearest(vector []float32, topk int) any {
	return map[string]any{"knn": map[string]any{"vector": map[string]any{"vector": vector, "k": topk}}}
}

// innerProduct undoes how the k-NN plugin makes a positive score s of an inner product p: p + 1 if p is not negative,
// else 1/(1 - p).
func innerProduct(s float64) float64 {
	if s >= 1 {
		return s - 1
	}
	return 1 - 1/s
}
