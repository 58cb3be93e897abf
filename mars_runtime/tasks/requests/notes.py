"""Short texts written for this repository, to be rewritten or searched: mails, lists, reviews.

Knows no instruction and no model. Names, places and figures are made up.
"""

from __future__ import annotations

NOTES = (
    "hey team, just a heads up that the printer on floor 2 is dead again, the guy said he cant "
    "come before thursday so pls use the one next to reception till then. also who took the "
    "blue toner?? we paid 68 euros for it and its gone. thx, Petra",
    "Dear Sir or Madam, I stayed in room 312 of your hotel from 3 to 6 April. The shower was "
    "cold on two mornings, and the window could not be closed. When I told Mr Halvorsen at the "
    "desk, he was friendly but could do nothing. I ask you to refund one of the three nights, "
    "that is 94 euros. Yours faithfully, Joan Whitlock",
    "Meeting moved: the budget review with Anders Holm and Priya Nair is no longer on Monday at "
    "9:00 but on Wednesday, 17 October, at 14:30 in room Birch. Please bring the printed "
    "figures of the second quarter. Lunch is not provided. Call 555-0148 if you cannot come.",
    "I bought this rucksack for a walk of nine days. It is light, it sits well, and the pockets "
    "are where I want them. On the fourth day a buckle broke, and the rain cover is too small "
    "for the pack when it is full. The shop sent a new buckle within a week. For short trips I "
    "would buy it again; for long ones I would look for something stronger.",
    "Lentil soup for four: fry two chopped onions and three cloves of garlic in oil, add 250 "
    "grams of red lentils, one tin of tomatoes and a litre of stock, and cook for twenty "
    "minutes. Season with cumin, salt and the juice of half a lemon. Serve with bread and a "
    "spoonful of yoghurt.",
    "The workshop was attended by us in March, and it was found by most of us that the first day "
    "was made too long by the introductions that were given. The exercises that were done on "
    "the second day were liked by everybody, and it is wished by us that more of them be done "
    "next year.",
    "To rent from 1 August: bright flat of 62 square metres in Mill Lane 8, second floor, two "
    "rooms, kitchen with oven, bath with window, cellar. Cold rent 710 euros, heating about 85 "
    "euros, deposit of two months. No smokers, cats are welcome. Viewing on Saturday, 10 to 12, "
    "Mrs Tanaka, telephone 555-0192.",
    "Our shop is shutting on sundays from now on because there is not enough costumers and the "
    "staff need there rest. On saturdays we are open longer then before, until 8 in the evening. "
    "We hopes you understand and looks forward to see you soon.",
    "Patient, 58, came on 12 May because of pain in the left knee after a fall from a ladder two "
    "days before. The knee is swollen, bending is limited to ninety degrees. The X-ray shows no "
    "fracture. Cooling, rest, ibuprofen 400 mg three times a day for five days. Back in one "
    "week, earlier if there is fever.",
    "Yesterday evening at about half past seven a lorry lost part of its load on the bridge near "
    "Elmstead. Sixty crates of oranges rolled over both lanes. Nobody was hurt. The road was "
    "closed for two hours, and passers-by were allowed to take home what they could carry.",
    "The new timetable is honestly kind of a mess. Bus 40 used to come every ten minutes and now "
    "it's like every twenty, and the last one goes at 22:15, so if you work late you're stuck. "
    "Somebody at the town hall clearly never takes the bus. Rant over.",
    "Inventory of the tool shed, 3 November: four spades, two of them with cracked handles; one "
    "wheelbarrow, tyre flat; a box of about 120 screws; two saws, one rusty; a ladder of three "
    "metres; five pairs of gloves, three pairs too small; half a bag of cement, hard.",
)
