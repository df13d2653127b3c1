"""What was found in the files of the last models is kept, and no more than that."""

from app.domain.models import ModelFacts, TensorFact
from app.services.model_intake import FilesInspection, InspectionCache

TENSOR = TensorFact("F32", (1,), "model.safetensors", 4)


def found(tensors: int = 1) -> FilesInspection:
    facts = ModelFacts({}, {str(number): TENSOR for number in range(tensors)}, ())
    return FilesInspection(facts, [], ())


def test_least_recently_used_model_goes_first() -> None:
    cache = InspectionCache(size=2)
    kept = cache.get("a", found)
    dropped = cache.get("b", found)
    cache.get("a", found)
    cache.get("c", found)

    assert cache.get("a", found) is kept
    assert cache.get("b", found) is not dropped


def test_model_whose_bytes_have_no_name_is_read_each_time() -> None:
    cache = InspectionCache()

    assert cache.get(None, found) is not cache.get(None, found)


def test_model_of_very_many_tensors_is_not_kept() -> None:
    cache = InspectionCache(max_tensors=2)

    assert cache.get("a", lambda: found(3)) is not cache.get("a", lambda: found(3))
