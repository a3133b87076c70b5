"""Runs the configurations that have not run yet, or predicts all of them, and works out what each says."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.record.launch_line import parse
from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.sweep.evaluate import evaluate, predicted
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.predictor import Described, Predictor
from prismdbg.sweep.request import FOLDER, SweepRequest, Trial, tokens_of
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.space import Configuration
from prismdbg.sweep.workers.workers import workers


def sweep(request: SweepRequest, say: Say, only: Collection[str] | None = None) -> list[Result]:
    """One result for each configuration, in their order, or for `only` those. What has run before is not run again."""
    request.space.check(request.command, FOLDER)
    _check_tokens(request)
    for one in request.space.configurations():
        if one.mesh is not None:
            parse(one.words(request.command, folder=FOLDER)).check_program()
    with SweepFolder.opened(request) as folder:
        tried = [one for one in request.space.configurations() if only is None or one.name in only]
        trials = {one.name: folder.trial(one) for one in tried if one.mesh is not None}
        missing = [trial for trial in trials.values() if not folder.has_run(trial)]
        if done := len(trials) - len(missing):
            say(f"{counted(done, 'configuration')} ran before; {len(missing)} to go")
        why = workers(folder, say).run(missing)
        return [_result(folder, trials[one.name], why, say) if one.mesh else _impossible(one) for one in tried]


def sweep_of_predictions(request: SweepRequest, predictor: Predictor, say: Say) -> list[Result]:
    """The same of predictions: nothing runs. What is wrong with the command is an error before the first of them."""
    return [result for result, _ in _predictions(request, predictor, say)]


def kept_predictions(request: SweepRequest, predictor: Predictor, say: Say) -> list[Result]:
    """Predictions, kept with their graphs in the folder of the sweep. Those of an earlier start may rest on other
    operators: they are removed, and all are predicted anew."""
    results: list[Result] = []
    predictions = _predictions(request, predictor, say)
    with SweepFolder.opened(request) as folder:
        folder.remove_trials()
        for result, graph in predictions:
            if graph is not None:
                folder.keep_prediction(result, graph)
            results.append(result)
    return results


def _predictions(request: SweepRequest, predictor: Predictor, say: Say) -> Iterator[tuple[Result, JobGraph | None]]:
    """Without a graph where the model cannot be divided so. The command is checked at once, not with the first one."""
    request.space.check(request.command, is_told_mesh=True)
    _check_tokens(request)
    tried = list(request.space.configurations())
    described = {one.name: predictor.describe(one.words(request.command), one.mesh) for one in tried if one.mesh}

    def each() -> Iterator[tuple[Result, JobGraph | None]]:
        left = len(described)
        for one in tried:
            if one.mesh is None:
                yield _impossible(one), None
                continue
            yield _predicted(predictor, one, described[one.name], tokens_of(one, request.tokens))
            left -= 1
            say(f"{one.name}: predicted; {left} to go")

    return each()


def _predicted(
    predictor: Predictor, one: Configuration, described: Described, tokens: int
) -> tuple[Result, JobGraph | None]:
    try:
        prediction = predictor.predict(described)
    except UsageError as error:
        return replace(_impossible(one), mesh=str(one.mesh), why=str(error)), None
    return predicted(one, prediction.timeline, tokens, prediction.error), prediction.timeline.graph


def _check_tokens(request: SweepRequest) -> None:
    if request.tokens:
        request.space.check_product(request.tokens)


def _impossible(one: Configuration) -> Result:
    return Result(name=one.name, values=one.values, state=State.IMPOSSIBLE, why=one.impossible)


def _result(folder: SweepFolder, trial: Trial, why: dict[str, str], say: Say) -> Result:
    one = trial.configuration
    failed = Result(name=one.name, values=one.values, state=State.FAILED, mesh=str(one.mesh))
    if one.name in why:
        return failed.because(why[one.name])
    if (known := folder.result(trial)) is not None:
        return known
    try:
        result = evaluate(trial)
    except PrismError as error:
        folder.run_again(trial)
        return failed.because(str(error))
    folder.keep(trial, result)
    say(f"{one.name}: evaluated")
    return result
