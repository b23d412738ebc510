"""Models on the engine, the text and data they are trained on, training, generation, and weights from elsewhere."""

from chainrule.models import checkpoints, datasets, pretrained, tasks, worked_example
from chainrule.models.bert import BERT, BERTConfig, mask_tokens
from chainrule.models.counting import count_parameters
from chainrule.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from chainrule.models.generation import generate, probabilities, stream
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.tokenizers import BPETokenizer, CharTokenizer, Tokenizer, WordPieceTokenizer, WordTokenizer
from chainrule.models.training import Trainer, TrainingConfig
from chainrule.models.word2vec import Word2Vec, Word2VecConfig, WordVectors
from chainrule.models.worked_example import WorkedExample

__all__ = [
    "BERT",
    "GPT",
    "MLP",
    "BERTConfig",
    "BPETokenizer",
    "CharTokenizer",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "GPTConfig",
    "MLPConfig",
    "Tokenizer",
    "Trainer",
    "TrainingConfig",
    "Word2Vec",
    "Word2VecConfig",
    "WordPieceTokenizer",
    "WordTokenizer",
    "WordVectors",
    "WorkedExample",
    "checkpoints",
    "count_parameters",
    "datasets",
    "generate",
    "mask_tokens",
    "pretrained",
    "probabilities",
    "stream",
    "tasks",
    "worked_example",
]
