"""Passages written for this repository, to be summed up: notices, reports, small essays.

Knows no instruction and no model. Nothing in them is real, save common knowledge.
"""

from __future__ import annotations

PASSAGES = (
    "The public library on Harbour Street will close for eleven weeks from the first of March so "
    "that its roof and heating can be replaced. During that time the children's section moves to "
    "the old post office, which will open from noon to six on weekdays. Books that fall due while "
    "the building is closed are renewed automatically, and no fines are charged. Readers who have "
    "ordered a title will be told by letter where it can be fetched. The council says the work "
    "will cut the heating bill by about a third, and that the reading room on the upper floor, "
    "shut for years because of a leak, can be used again in the summer.",
    "Sourdough bread rises without bought yeast. Flour and water left on a shelf soon hold wild "
    "yeasts and bacteria, and a baker who feeds this mixture every day keeps them alive for "
    "years. The bacteria make acids that give the loaf its taste and help it to stay fresh, but "
    "they work slowly: a dough may need most of a day before it goes into the oven. Temperature "
    "matters more than exact timing. In a cold kitchen the dough can be left overnight, while on "
    "a hot afternoon it may be ready in four hours. A good sign is that the dough has grown by "
    "half and trembles when the bowl is tapped.",
    "When the ferry company announced that it would drop its last evening crossing, the people of "
    "Skarrow did not write letters. They counted. For six weeks in autumn, volunteers stood at "
    "the pier with clipboards and noted every passenger, every bicycle and every crate of fish. "
    "Their figures showed that the late boat carried more islanders than the two midday boats "
    "together, because most of them work on the mainland until five. The company had only looked "
    "at tickets sold at the counter, and regular travellers use yearly passes. In December the "
    "crossing was kept, and one of the midday boats was cancelled instead.",
    "Swifts spend most of their lives in the air. They eat, drink, gather feathers for the nest "
    "and even sleep on the wing, and a young bird that leaves the nest may not land for two "
    "years. They come to towns because old walls and roofs offer the narrow holes they like to "
    "breed in. Renovation closes those holes, often in winter, when nobody remembers that birds "
    "lived there. A hollow brick costs little and can be built into a new wall in minutes. In "
    "streets where a few dozen were fitted, colonies returned within five summers, although the "
    "first pairs usually took more than one season to find them.",
    "Minutes of the tenants' meeting, 14 May. Eleven flats were represented. The caretaker "
    "reported that the lift had failed three times since Easter; the maintenance firm blames a "
    "worn door sensor and will replace it on 2 June. Ms Okafor asked for better lighting in the "
    "bicycle cellar, and Mr Brandt offered to fit two lamps if the house pays for the material, "
    "which was agreed up to ninety euros. The question of a shared garden table was put off, "
    "because nobody had asked the ground floor yet. A complaint about noise after ten was "
    "settled on the spot. The next meeting is on 9 September at seven in the laundry room.",
    "Early railways kept local time. A train that left the capital at noon arrived in a town "
    "whose church clock was eleven minutes behind, and printed timetables needed a table of "
    "corrections. Passengers missed connections, and more than once two trains were sent onto "
    "the same track because two stations disagreed about the minute. The companies began to "
    "carry the time of one observatory along their lines, first with a watch handed from guard "
    "to guard and later by telegraph. For some decades towns kept two clocks, one for the "
    "railway and one for everything else, until parliaments made the railway's time the law.",
    "Our trial of four-day weeks in the claims department ran from January to June. The number of "
    "claims settled a week fell by two percent in the first month and was back at its old level "
    "by April. Sick leave dropped from 4.1 to 2.6 days a person. Customers waited slightly longer "
    "for a first answer, six hours instead of five on average, since fewer people were on duty on "
    "Fridays. Asked in July, nineteen of twenty-two employees wanted to keep the arrangement, two "
    "did not mind, and one preferred shorter days to a free one. We propose to go on until the "
    "end of the year and to spread the free day over Monday and Friday.",
    "A glacier is a slow river of ice. Snow that falls on its upper part is pressed together by "
    "later snow until the air is driven out, and the blue ice that remains creeps downhill under "
    "its own weight, a few centimetres to several metres a day. Stones frozen into its bottom "
    "scratch the rock below, and whole hills are ground to flour that colours the lakes beneath "
    "a milky green. Where more ice melts at the tongue than arrives from above, the glacier "
    "retreats, although every grain of ice in it is still moving forwards. The ridges of rubble "
    "left behind show how far it once reached.",
    "Maren had inherited the violin without being able to play it. For a year it lay on the "
    "wardrobe in its black case. Then the heating failed in February, and a crack ran across the "
    "top as long as a finger. The violin maker in Tolde looked at it for some time without "
    "touching it. He said that the repair would cost more than the instrument was worth, that he "
    "would do it anyway if she liked, and that he would take half the price if she learned to "
    "play three songs on it. She thought he was joking. In November she stood in his workshop "
    "and played two of them, and he charged her two thirds.",
    "Recall notice. The firm Lindqvist asks owners of its kettle model K220, sold between August "
    "and January, to stop using it. In some of them the handle may loosen when the kettle is "
    "full, so that boiling water can spill. Concerned are kettles whose serial number, on the "
    "underside, begins with 71 or 72. They can be returned to any shop that sells them, with or "
    "without a receipt, and the price is paid back at once; those who prefer can have the handle "
    "replaced free of charge within two weeks. Kettles of other colours than white are not "
    "affected, because their handles came from another supplier. No injury has been reported.",
    "Many people believe that a password must look like noise to be safe. Length does more. A "
    "machine that tries a billion guesses a second finds eight random letters within minutes, "
    "but four ordinary words chosen by dice keep it busy for centuries, and they can be "
    "remembered. What harms most is using the same password twice, because a thief who steals "
    "the list of a small shop will try every entry at banks and mail services the same night. A "
    "password manager takes that burden away: it invents and stores a different one for each "
    "site, and its owner learns a single long sentence by heart.",
    "The apple harvest in the valley began eleven days early this year, after a mild winter and a "
    "dry spring. Growers report small but very sweet fruit. Hail on the ninth of July damaged "
    "about a fifth of the orchards on the western slope, and most of those apples will be pressed "
    "rather than sold whole. Because sugar prices have risen as well, the two cider mills have "
    "agreed to pay nine cents more a kilo than last autumn. Finding pickers was harder than "
    "before: the hostel that used to house them has been sold, so that several farms put up "
    "tents, and one has started to let schools pick in return for half of the juice.",
)
