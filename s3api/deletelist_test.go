package s3api

import (
	"slices"
	"strings"
	"testing"
)

func TestDeletedKeys(t *testing.T) {
	object := func(key string) string { return "<Delete><Object><Key>" + key + "</Key></Object></Delete>" }
	for body, want := range map[string][]string{
		object("a"):                               {"a"},
		object(" a\tb\n "):                        {" a\tb\n "},
		object("&lt;&gt;&amp;&apos;&quot;"):       {`<>&'"`},
		object("a&#13;b&#x0d;&#10;"):              {"a\rb\r\n"},
		object("&#228;\u00e4\U0001f600&#x1F600;"): {"\u00e4\u00e4\U0001f600\U0001f600"},
		object("\ufffd"):                          {"\ufffd"},
		object("a > b"):                           {"a > b"},
		object("../x"):                            {"../x"},
		"\ufeff" + `<?xml version='1.0' encoding="UTF-8" standalone="yes"?>` + "\r\n" + object("a") + "\r\n": {"a"},
		`<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + "\r\n <Object>\r\n " +
			"<VersionId>v</VersionId><Key>a</Key>" +
			"<ETag>e</ETag><LastModifiedTime>m</LastModifiedTime><Size>1</Size></Object><Object><Key>b</Key></Object>" +
			"<Quiet>true</Quiet></Delete>": {"a", "b"},
	} {
		keys, ok := deletedKeys([]byte(body), []string{"application/xml; charset=UTF-8"})
		if !ok || !slices.Equal(keys, want) {
			t.Errorf("%q: %q, %v; want %q", body, keys, ok, want)
		}
	}
	deep := strings.Repeat("<Object>", 300_000)
	for _, body := range []string{
		"", " ", "a", "<Delete/>", "<Delete><Quiet>true</Quiet></Delete>", object(""), "<Delete><Object/></Delete>",
		"<Delete><Object><Key/></Object></Delete>",
		// Control bytes, by themselves or by reference, what is no UTF-8, halves of a pair.
		object("\x00"), object("a\x01b"), object("&#0;"), object("&#x1;"), object("&#xFFFE;"),
		object("\xff"), object("\xc0\xaf"),
		object("\xed\xa0\x80"), object("&#xD83D;&#xDE00;"), object("\ufffd&#xD800;"), object("&#x110000;"), object("&#-1;"),
		// Line ends that some parsers change.
		object("a\rb"), object("a\r\nb"),
		// What is joined, split, left out or replaced.
		object("a<!-- -->b"), object("<![CDATA[a]]>"), object("a<![CDATA[b]]>"), object("a<?p?>b"), object("a<b>c</b>"),
		object("&undefined;"), object("&nbsp;"), object("&amp"), object("a]]>b"), object("a & b"),
		`<!DOCTYPE d [<!ENTITY k "a">]>` + object("&k;"), `<!DOCTYPE d SYSTEM "http://127.0.0.1/x">` + object("a"),
		`<?xml version="1.1"?>` + object("a"), `<?xml version="1.0" encoding="ISO-8859-1"?>` + object("\u00e4"),
		`<?xml version="1.0" encoding="utf-8" xencoding="utf-16"?>` + object("a"),
		" " + `<?xml version="1.0"?>` + object("a"),
		`<?php?>` + object("a"), object("a") + `<?xml version="1.0"?>`,
		// Other names, places, namespaces and attributes; text where there is none.
		"<Delete><Object><key>a</key></Object></Delete>", "<Delete><Key>a</Key></Delete>", "<Object><Key>a</Key></Object>",
		"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>", "<Delete><Delete><Key>a</Key></Delete></Delete>",
		`<Delete xmlns:x="y"><Object><Key>a</Key></Object></Delete>`, `<Delete><x:Object><Key>a</Key></x:Object></Delete>`,
		`<Delete><Object><Key xmlns="y">a</Key></Object></Delete>`,
		`<Delete><Object><Key xml:space="default"> a</Key></Object></Delete>`,
		"<Delete>x<Object><Key>a</Key></Object></Delete>", "<Delete><Object>x<Key>a</Key></Object></Delete>",
		object("a") + "x", object("a") + object("b"), object("a") + "</Delete>",
		"<Delete><Object><Key>a</Object></Key></Delete>",
		"<Delete><Object><Key>a</Key></Object>", "<Delete><Object><Key>a",
		deep, "<Delete><Object><Key>" + deep,
	} {
		if keys, ok := deletedKeys([]byte(body), nil); ok {
			t.Errorf("%.200q: %q", body, keys)
		}
	}
	for contentType, ok := range map[string]bool{"": true, "text/xml": true, "text/xml; charset=utf-8": true,
		"nonsense;": true, "text/xml; charset=UTF-16": false, "text/xml; charset=\"latin1\"": false,
		"text/xml; charset=utf-8; charset=latin1": false} {
		if _, got := deletedKeys([]byte(object("a")), []string{contentType}); got != ok {
			t.Errorf("%s: %v", contentType, got)
		}
	}
}

// Nesting costs no memory to speak of: it ends where the schema does.
func TestDeepNesting(t *testing.T) {
	body := []byte("<Delete>" + strings.Repeat("<Object>", 200_000))
	if n := testing.AllocsPerRun(1, func() { deletedKeys(body, nil) }); n > 100 {
		t.Errorf("%v allocations", n)
	}
}
