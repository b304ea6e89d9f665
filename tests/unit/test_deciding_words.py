"""What two questions must share beyond their meaning."""

import pytest

from ragkv.answer_cache.guards import same_deciding_words

SAME = [
    ("दुख क्या है?", "दुख क्या है"),
    ("Was kostet schönes Öl?", "was kostet scho\u0308nes O\u0308l"),
    ("What does ❤️ mean?", "What does ❤ mean"),
    ("Who wrote the first program?", "who wrote the first program"),
    ("Who wrote the first program?", "Please tell me who wrote the very first program."),
    ("What is the notice period of the contract?", "What's the notice period of the contract?"),
    ("Who won in Paris in 1998?", "who was it that won in paris, 1998"),
    ("How do I reset my password?", "How do I set my password anew?"),
    ("What does 'hot mode' do?", "What does “Hot Mode” do?"),
    ("Wer schrieb das erste Programm?", "Wer hat das erste Programm geschrieben?"),
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
]


def test_questions_that_differ_in_their_wording_alone_may_share_an_answer(subtests: pytest.Subtests):
    for one, other in SAME:
        with subtests.test(one=one, other=other):
            assert same_deciding_words(one, other)
            assert same_deciding_words(other, one)


def test_questions_that_differ_in_a_particular_may_not(subtests: pytest.Subtests):
    for one, other in DIFFERENT:
        with subtests.test(one=one, other=other):
            assert not same_deciding_words(one, other)
            assert not same_deciding_words(other, one)
