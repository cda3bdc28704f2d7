package tokenizer

import (
	"errors"
	"fmt"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// bertRules are the steps of Hugging Face's BertNormalizer, in their order: control characters are dropped and white
// space becomes spaces, Chinese characters get spaces around, accents are dropped, letters become small.
type bertRules struct{ clean, chinese, strip, lower bool }

// bertRules returns the rules that a normalizer stands for.
func (c *component) bertRules() (bertRules, error) {
	if c != nil && c.Type == "Sequence" && len(c.Normalizers) == 1 {
		c = c.Normalizers[0]
	}
	if c == nil || c.Type != "BertNormalizer" {
		return bertRules{}, fmt.Errorf("normalizer %s is not supported with %s; supported is BertNormalizer", c.name(), wordPiece)
	}
	strip := c.Lowercase
	if c.StripAccents != nil {
		strip = *c.StripAccents
	}
	return bertRules{clean: c.CleanText, chinese: c.HandleChineseChars, strip: strip, lower: c.Lowercase}, nil
}

// apply normalises a character that is not ASCII and hands what comes out of it to a cutter. It returns scratch, grown.
// Characters are decomposed one by one: their marks, whose order that may change, are dropped.
func (n bertRules) apply(c *cutter, r rune, scratch []byte) []byte {
	if n.clean && isBertControl(r) {
		return scratch
	}
	chinese := n.chinese && isChinese(r)
	if chinese {
		c.flush()
	}
	if n.strip {
		scratch = norm.NFD.AppendString(scratch[:0], string(r))
		for _, part := range string(scratch) {
			if !isBertMark(part) {
				n.small(c, part)
			}
		}
	} else {
		n.small(c, r)
	}
	if chinese {
		c.flush()
	}
	return scratch
}

func (n bertRules) small(c *cutter, r rune) {
	if !n.lower {
		c.char(r)
		return
	}
	if r == 'İ' { // the one letter whose small form has two characters
		c.char('i')
		c.char('\u0307')
		return
	}
	c.char(unicode.ToLower(r))
}

// truncation is the part of a tokenizer.json that says how long texts are cut. Its length is not used: encoders have
// their own.
type truncation struct {
	Direction string `json:"direction"`
}

// postProcessor says which special tokens stand around a text.
type postProcessor struct {
	Type string `json:"type"`
	// Single and SpecialTokens are those of TemplateProcessing.
	Single []struct {
		SpecialToken *templatePiece `json:"SpecialToken"`
		Sequence     *templatePiece `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	// Sep and CLS are those of BertProcessing: token and id.
	Sep []any `json:"sep"`
	CLS []any `json:"cls"`
}

type templatePiece struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"`
}

// around returns the ids before and after a single text.
func (p *postProcessor) around() (before, after []int32, err error) {
	switch {
	case p == nil:
		return nil, nil, nil
	case p.Type == "BertProcessing":
		first, last := idOfPair(p.CLS), idOfPair(p.Sep)
		if first < 0 || last < 0 {
			return nil, nil, errors.New("post_processor BertProcessing: want cls and sep, a token and its id each")
		}
		return []int32{first}, []int32{last}, nil
	case p.Type != "TemplateProcessing":
		return nil, nil, fmt.Errorf("post_processor %q is not supported with %s; supported are TemplateProcessing and "+
			"BertProcessing", p.Type, wordPiece)
	}
	seen := false
	for _, piece := range p.Single {
		switch {
		case piece.Sequence != nil && !seen && piece.Sequence.TypeID == 0:
			seen = true
		case piece.SpecialToken != nil && piece.SpecialToken.TypeID == 0:
			token, ok := p.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("post_processor: %q is not among its special_tokens", piece.SpecialToken.ID)
			}
			if seen {
				after = append(after, token.IDs...)
			} else {
				before = append(before, token.IDs...)
			}
		default:
			return nil, nil, errors.New("post_processor: single must be special tokens around one sequence, all of type 0")
		}
	}
	if !seen {
		return nil, nil, errors.New("post_processor: single has no sequence")
	}
	return before, after, nil
}

// idOfPair returns the id of ["[CLS]", 101], or -1.
func idOfPair(pair []any) int32 {
	if len(pair) != 2 {
		return -1
	}
	id, ok := pair[1].(float64)
	if !ok || id < 0 || id > maxTokenID || id != float64(int32(id)) {
		return -1
	}
	return int32(id)
}
