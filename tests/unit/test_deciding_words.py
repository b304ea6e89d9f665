"""What two questions must share beyond their meaning."""

import pytest

from ragkv.service.answer_cache.guards import differ_in_one_word, may_share_answer, same_deciding_words

SAME = [
    ("दुख क्या है?", "दुख क्या है"),
    ("Was kostet schönes Öl?", "was kostet scho\u0308nes O\u0308l"),
    ("What does ❤️ mean?", "What does ❤ mean"),
    ("Who wrote the first program?", "who wrote the first program"),
    ("Who wrote the first program?", "Please tell me who wrote the very first program."),
    ("What is the notice period of the contract?", "What's the notice period of the contract?"),
    ("Who won in Paris in 1998?", "who is it that won in paris, 1998"),
    ("How do I reset my password?", "How do I set my password anew?"),
    ("What does 'hot mode' do?", "What does “Hot Mode” do?"),
    ("Wer schrieb das erste Programm?", "Bitte sag, wer das erste Programm schrieb."),
    ("Which machine reads the cards?", "Which machines read a card?"),
    ("Where are the keys of the boathouse kept?", "Where is the key of the boathouse?"),
    ("Who repairs the old pump in the cellar?", "In the cellar, who is it that repairs the old pump?"),
    ("谁写了第一个程序？", "谁写了第一个程序?"),
]
DIFFERENT = [
    ("ป่าคืออะไร", "ป้าคืออะไร"),
    ("दुख क्या है?", "देख क्या है?"),
    ("ကား ဘာလဲ", "ကီး ဘာလဲ"),
    ("كَتَبَ من؟", "كُتِبَ من؟"),
    ("Wie fördert man Kohle?", "Wie fordert man Kohle?"),
    ("Quel est le prix du péché ?", "Quel est le prix du pêche ?"),
    ("What does 👍 mean?", "What does 👎 mean?"),
    ("How do I sort in C#?", "How do I sort in C++?"),
    ("What does 5 € buy?", "What does 5 £ buy?"),
    ("Who won in 1998?", "Who won in 1999?"),
    ("Who won in 1998?", "Who won?"),
    ("Is 3 more than 5?", "Is 5 more than 3?"),
    ("What does version 2.1 do?", "What does version 2.2 do?"),
    ("What is RTX4080?", "What is RTX4090?"),
    ("What is one plus two?", "What is one plus three?"),
    ("Who won in Paris?", "Who won in Berlin?"),
    ("Who won in Paris?", "who won in berlin?"),
    ("Ada wrote what?", "Bob wrote what?"),
    ("Did Rome defeat Carthage?", "Did Carthage defeat Rome?"),
    ('What does "hot mode" do?', 'What does "cool mode" do?'),
    ("Is smoking allowed?", "Is smoking not allowed?"),
    ("Is smoking allowed?", "Isn't smoking allowed?"),
    ("Is smoking allowed on the balcony?", "Is smoking prohibited on the balcony?"),
    ("Is it legal to record a call?", "Is it illegal to record a call?"),
    ("Which changes are reversible?", "Which changes are irreversible?"),
    ("Is it harmful to children?", "Is it harmless to children?"),
    ("What does the employer pay?", "What does the employee pay?"),
    ("What are the rights of the lessor?", "What are the rights of the lessee?"),
    ("Ist Rauchen erlaubt?", "Ist Rauchen verboten?"),
    ("When was Ada born?", "Where was Ada born?"),
    ("How wide is the inner pipe?", "How wide is the outer pipe?"),
    ("Wann wurde sie geboren?", "Wo wurde sie geboren?"),
    ("Was ist der größte Wert?", "Was ist der kleinste Wert?"),
    ("谁写了第一个程序？", "谁写了第二个程序？"),
    ("Who is the CEO of Acme?", "Who was the CEO of Acme?"),
    ("What trains go to Paris?", "What trains go from Paris?"),
    ("Who wrote a book with Ann?", "Who wrote a book about Ann?"),
    ("Who reports to Ann?", "Who does Ann report to?"),
    ("Wohin fährt der Zug von Bern?", "Wohin fährt der Zug mit Bern?"),
    ("Qui est le chef ?", "Qui était le chef ?"),
    ("¿Quién es el jefe?", "¿Quién fue el jefe?"),
]


def test_questions_that_differ_in_their_wording_alone_may_share_an_answer(subtests: pytest.Subtests):
    for one, other in SAME:
        with subtests.test(one=one, other=other):
            assert may_share_answer(one, other)
            assert may_share_answer(other, one)


def test_questions_that_differ_in_a_particular_may_not(subtests: pytest.Subtests):
    for one, other in DIFFERENT:
        with subtests.test(one=one, other=other):
            assert not may_share_answer(one, other)
            assert not may_share_answer(other, one)


OPPOSITES = [
    ("What increases the pressure in the boiler?", "What decreases the pressure in the boiler?"),
    ("When do inbound trains stop here?", "When do outbound trains stop here?"),
    ("How do I list files in ascending order?", "How do I list files in descending order?"),
    ("When does the pool open on weekdays?", "When does the pool open at weekends?"),
    ("What raises the rent?", "What reduces the rent?"),
    ("Which import rules apply to cheese?", "Which export rules apply to cheese?"),
    ("How do importers declare cheese?", "How do exporters declare cheese?"),
    ("How do I encrypt the disk?", "How do I decrypt the disk?"),
    ("How do I install the driver?", "How do I uninstall the driver?"),
    ("What does the sender sign?", "What does the recipient sign?"),
    ("Which way is clockwise for the valve?", "Which way is anticlockwise for the valve?"),
    ("What are the tolls in summer?", "What are the tolls in winter?"),
    ("What happens at the anode?", "What happens at the cathode?"),
    ("Who takes the morning shift?", "Who takes the evening shift?"),
    ("What is the fee for residents?", "What is the fee for tourists?"),
    ("Where do I park a lorry?", "Where do I park a bicycle?"),
    ("How is butter stored?", "How is yoghurt stored?"),
    ("How do I tighten the belt?", "How do I loosen the belt?"),
    ("Which bolts hold the lid?", "Which bolts hold the hinge?"),
    ("What is added when it thickens?", "What is added when it thins?"),
    ("Was erhöht den Druck im Kessel?", "Was senkt den Druck im Kessel?"),
    ("Was kostet die Hinfahrt?", "Was kostet die Rückfahrt?"),
    ("Qu'est-ce qui augmente la pression ?", "Qu'est-ce qui diminue la pression ?"),
    ("Что увеличивает давление?", "Что уменьшает давление?"),
]
REWORDED_OPPOSITES = [
    ("What increases the pressure in the boiler?", "Please tell me what decreases the pressure in the copper boiler."),
    ("Who buys mills in the valley?", "Please tell me who sells the mills in the green valley."),
    ("What happens if the gate opens suddenly?", "What exactly happens if the gate closes suddenly?"),
    ("Was sind erlaubte dinge?", "Was sind denn eigentlich verbotene dinge?"),
    ("Quelles activités sont autorisées ici ?", "Quelles activités sont formellement interdites ici ?"),
]


def test_questions_that_differ_in_one_word_may_not_whatever_the_word(subtests: pytest.Subtests):
    for one, other in OPPOSITES:
        with subtests.test(one=one, other=other):
            assert differ_in_one_word(one, other)
            assert not may_share_answer(one, other)


def test_a_deciding_word_decides_in_all_its_forms(subtests: pytest.Subtests):
    for one, other in REWORDED_OPPOSITES:
        with subtests.test(one=one, other=other):
            assert not differ_in_one_word(one, other)
            assert not same_deciding_words(one, other)
            assert not same_deciding_words(other, one)


def test_a_question_with_a_further_word_does_not_differ_in_one_word():
    assert not differ_in_one_word("Who repairs pumps?", "Who repairs pumps and boats?")
    assert not differ_in_one_word("Who repairs pumps?", "Who is repairing a pump?")
