"""The names of the people in the tasks: real ones and made-up ones, with their pronouns.

Knows no task. Made-up names are many so that a name has to be copied, not guessed; the names kept
for evaluation are in no training text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Person:
    """A name with the pronouns that go with it."""

    name: str
    he: str

    @property
    def his(self) -> str:
        return "his" if self.he == "he" else "her"


def _people(boys: str, girls: str) -> tuple[Person, ...]:
    return tuple(
        [Person(name, "he") for name in boys.split()]
        + [Person(name, "she") for name in girls.split()]
    )


REAL_PEOPLE = _people(
    "Tom Sam Ben Max Leo Jack Peter Paul John Will Otto Hans Hugo Adam Mark David Henry George "
    "Oscar Felix Simon Jonas Emil Noah Luke Frank Carl Martin "
    "Albert Anton Arthur Bruno Charles Edgar Edward Eric Ernest Ethan Finn Francis Gabriel "
    "Gilbert Harry Harold Isaac Ivan Jacob Jasper Joel Joseph Julian Karl Kurt Lars Leon Lewis "
    "Louis Lucas Magnus Marcus Matthew Michael Milo Nathan Neil Nicholas Nils Oliver Owen Patrick "
    "Philip Ralph Richard Rudolf Samuel Stephen Theo Thomas Toby Walter William",
    "Anna Mary Lucy Emma Ella Mila Rose Clara Alice Nina Lena Ida Jane Sara Maya Julia Ruth Lily "
    "Grace Helen Kate Nora Eva Molly Gerda Dora Betty Susan "
    "Ada Agnes Amelia Astrid Beatrice Bella Bertha Bianca Carla Caroline Cecilia Charlotte Cora "
    "Diana Edith Elena Eliza Elsa Esther Fiona Flora Frances Freya Georgia Gloria Greta Hanna "
    "Heidi Helga Ingrid Irene Isabel Jenny Johanna Judith Karin Linda Lisa Lotte Louise Lydia "
    "Mabel Magda Margaret Martha Matilda Miriam Olga Olivia Paula Petra Rachel Rebecca Rita "
    "Sophie Stella Thea Tilda Vera Wanda Zoe",
)
MADE_UP_PEOPLE = _people(
    "Tamo Belin Hondar Griso Gedar Ditan Pipan Puno Golvim Narsek Mondul Rasar Wurdo Wostin Zasen "
    "Marno Jinar Trenkar Valmar Beldin Ralan Kamik Mezim Rogul Butan Fulven Salmik Tralnar Sirlen "
    "Vizan Tepan Nalnor Kirno Fozik Bezo Jizor Brelar Vokor Rembin Ganin Gruzar Zevo Dambek "
    "Termul Orlin Aldo Bramo Corvin Doran Elrik Fendo Garim Halvo Irmin Jorun Kelvo Lomar Merrin "
    "Nolvar Obrin Pardo Quillo Rudan Sorin Tavio Ulmar Vando Wesko Yorik Zandor Olvo Umbro Hesko "
    "Perrin Davik",
    "Orsa Zogune Visia Biskina Fendia Tesia Yalvune Brelna Finelle Tiskia Kundova Lugune Wumova "
    "Penia Yulmina Jugika Starli Fuma Zarda Kibia Lanki Lombi Zilmina Grakia Paldis Terette Rezika "
    "Pavette Stidova Prekova Lonia Lopika Gevelle Sernia Nugova Fafune Nodette Jalni Shafa Korli "
    "Ronika Mostova Feski Falvi Yola Alvira Bettine Calda Delmi Elvika Farine Gildi Halva Imelna "
    "Jorika Kalene Lumira Mavelle Nerisa Olmira Pelka Quina Rivelle Solvi Tarina Ulvia Velda "
    "Wenka Ysolde Zerina Ombra Arvina Hesta Dorvia Mirka",
)
TRAIN_PEOPLE = REAL_PEOPLE + MADE_UP_PEOPLE
EVAL_PEOPLE = _people("Dan Robert Fred James Victor", "Amy Laura Marta Polly Ellen")
