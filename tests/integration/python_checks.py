"""The checks of python.sh, in its directory: beside lines.en, lines.de and scores, which the commands wrote."""

import json
import math
import multiprocessing
import os
import threading
import unittest

import numpy

import heddle


def lines_of(path):
    with open(path) as file:
        return file.read().splitlines()


def translate_in_child(results):
    try:
        results.put(heddle.Translator("run").translate("one"))
    except heddle.Error as error:
        results.put(str(error))


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.translator = heddle.Translator("run")
        cls.source = lines_of("lines.en")
        cls.target = lines_of("lines.de")

    def test_translations_are_those_of_the_command(self):
        found = self.translator.translate_batch(self.source, beam_size=4)
        self.assertEqual([each.text for each in found], self.target)
        best = self.translator.translate_batch(self.source[:1], beam_size=4, num_hypotheses=3)[0]
        self.assertEqual(len(best.hypotheses), 3)
        self.assertEqual(best.text, self.target[0])
        self.assertGreaterEqual(best.hypotheses[0].score, best.hypotheses[1].score)
        self.assertEqual(self.translator.translate_batch([]), [])

    def test_scores_are_those_of_the_command(self):
        scores = self.translator.score_batch(self.source, self.target)
        for own, of_command in zip(scores, lines_of("scores")):
            self.assertTrue(math.isclose(own, float(of_command), abs_tol=1e-3))

    def test_threads_wait_for_one_another(self):
        results = {}

        def work(index):
            results[index] = self.translator.translate_batch(self.source, beam_size=4)[index].text

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([results[index] for index in range(4)], self.target[:4])

    def test_a_second_model_computes_beside_the_first(self):
        int8 = heddle.Translator("run", quantize="int8")
        self.assertEqual(len(int8.translate_batch(self.source)), len(self.source))
        self.assertEqual(int8.digest, self.translator.digest)

    def test_embeddings_are_an_array(self):
        vectors = self.translator.embed_batch(self.source)
        self.assertEqual((vectors.shape, vectors.dtype), ((len(self.source), 32), numpy.float32))
        self.assertTrue(numpy.isfinite(vectors).all())

    def test_errors_are_exceptions_with_the_commands_texts(self):
        with self.assertRaisesRegex(heddle.DataError, "does not exist"):
            heddle.Translator("nowhere")
        with self.assertRaisesRegex(ValueError, "expected 1 <= n-best <= beam size"):
            self.translator.translate_batch(self.source, beam_size=0)
        with self.assertRaisesRegex(TypeError, "there is no option beam"):
            self.translator.translate_batch(self.source, beam=4)
        with self.assertRaisesRegex(TypeError, "not one string"):
            self.translator.translate_batch("a line")
        with self.assertRaises(heddle.UsageError):
            self.translator.score_batch(self.source, [])
        with self.assertRaises(heddle.Error):
            heddle.Generator("run").generate_batch(["an encoder-decoder model translates"])

    def test_a_forked_process_is_told(self):
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        child = context.Process(target=translate_in_child, args=(results,))
        child.start()
        self.assertIn("was forked", results.get(timeout=60))
        child.join()

    def test_a_dataset_has_arrays_of_ids(self):
        dataset = heddle.Dataset("data/valid.h5")
        source, target = dataset[-1]
        self.assertEqual((source.dtype, target.dtype), (numpy.int32, numpy.int32))
        self.assertTrue((dataset[len(dataset) - 1][0] == source).all())
        with self.assertRaises(IndexError):
            dataset[len(dataset)]
        self.assertEqual(len(list(dataset)), len(dataset))

    def test_a_checkpoint_has_tensors_by_name(self):
        checkpoint = heddle.Checkpoint("run", which="last")
        self.assertEqual(checkpoint.step, 20)
        name = "encoder.layers.0.self_attention.q.weight"
        self.assertEqual(checkpoint[name].shape, (32, 32))
        self.assertEqual(checkpoint.read(name, "adam.first_moment").shape, (32, 32))
        self.assertNotIn("nothing", checkpoint)
        self.assertEqual(len(checkpoint), len(list(checkpoint)))

    def test_the_numbers_of_a_run(self):
        steps, values = heddle.Run("run").series["train_loss"]
        self.assertEqual(steps[-1], 20)
        lines = [json.loads(line) for line in lines_of("run/metrics.jsonl")]
        self.assertAlmostEqual(values[-1], lines[-1]["train_loss"])

    def test_training_yields_its_metrics_and_stops(self):
        lines = list(heddle.train("run.toml", overrides={"run.directory": "short", "train.steps": 5}))
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4, 5])
        stopped = list(heddle.train("run.toml", ranks=2, overrides={"run.directory": "stopped", "train.steps": 100000},
                                    launcher=(os.environ["HEDDLE_MPIRUN"],), stop=lambda line: line["step"] >= 3))
        self.assertGreaterEqual(stopped[-1]["step"], 3)
        self.assertTrue(os.listdir("stopped/checkpoints"))
        with self.assertRaisesRegex(heddle.ConfigError, "train.stepz"):
            list(heddle.train("run.toml", overrides={"train.stepz": 5}))


if __name__ == "__main__":
    unittest.main(verbosity=0)
