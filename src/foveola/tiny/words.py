"""What the embedded model is asked and what it answers, in English and Chinese.

A question is drawn from templates whose slots are filled with synonyms, so that a task has thousands of
wordings. The templates in ``HELD_OUT`` are never trained on; the evaluation asks with them.
"""

from __future__ import annotations

import random
import re
from typing import Literal

Lang = Literal["en", "zh"]
Split = Literal["train", "held_out"]

CLEAN = "no defect"
DEFECTS_ZH = {
    "crazing": "龟裂", "inclusion": "夹杂", "patches": "斑块", "pitted surface": "麻点",
    "rolled-in scale": "压入氧化皮", "scratches": "划痕", "blowhole": "气孔", "break": "断裂", "crack": "裂纹",
    "fray": "磨损", "uneven": "不平整", "pitting": "点蚀", "open": "开路", "short": "短路", "mousebite": "鼠咬",
    "spur": "毛刺", "spurious copper": "余铜", "pin-hole": "针孔", "scratch": "刮痕", "pit": "凹坑",
    "stain": "污渍", CLEAN: "无缺陷",
}  # fmt: skip
MATERIALS_ZH = {
    "hot-rolled steel strip": "热轧钢带", "magnetic tile": "磁瓦", "printed circuit board": "印刷电路板",
    "ball screw": "滚珠丝杠", "road surface": "路面", "machined part": "加工件", "printed label": "印刷标签",
    "meter": "仪表",
}  # fmt: skip
CELLS = (
    "top left", "top center", "top right", "middle left", "center", "middle right",
    "bottom left", "bottom center", "bottom right",
)  # fmt: skip
CELLS_ZH = ("左上", "上中", "右上", "左中", "中央", "右中", "左下", "下中", "右下")
VERDICTS_ZH = {"pass": "合格", "fail": "不合格"}
YES_NO_ZH = {"yes": "是", "no": "否"}

_SLOTS = {
    "D": "defect|flaw|fault|anomaly|imperfection|damage|problem|issue|blemish",
    "Ds": "defects|flaws|faults|anomalies|imperfections|damages|problems|issues|blemishes",
    "P": "part|surface|picture|image|photo|piece|workpiece|component|sample|product|item|material",
    "S": "on this {P}|in this {P}|on the {P}|in the {P}|here|on it|shown here|shown in the {P}",
    "SHOW": "is|is visible|can be seen|appears|is present|do you see|is shown",
    "TELL": "tell me|name|identify|state|give|report|say|determine|specify|classify",
    "K": "kind of |type of |sort of |class of |category of ||",
    "SEE": "do you see|can you see|is there|can you find|do you find|do you notice|does it show",
    "CODE": "lot code|lot number|batch code|batch number|lot|code|serial code|printed code|lot no.|serial number",
    "READ": "read|give|tell me|transcribe|report|state|extract|return|write down|type out",
    "LAB": "on the label|printed here|on this label|in the picture|on the package|in the image|on it|shown here",
    "EXP": "expiry date|expiration date|best-before date|use-by date|expiry|date of expiry",
    "zD": "缺陷|瑕疵|问题|异常|毛病|损伤|不良",
    "zP": "零件|表面|图片|图像|照片|工件|产品|样品|部件|材料|画面",
    "zS": "这个{zP}上|图中|这张图里|{zP}上|该{zP}|这里|图片中|{zP}中|这个{zP}",
    "zK": "类型的|种类的|种|类||",
    "zCODE": "批号|批次号|批次代码|编码|代码|序列号|喷码|生产批号",
    "zREAD": "读出|识别|读取|给出|写出|告诉我|提取|报告",
    "zEXP": "有效期|到期日|失效日期|保质期|过期日期|截止日期",
}
_SLOT = re.compile(r"\{(\w+)\}")

# task -> language -> split -> templates. {x} is what a yes/no question asks for, {n} a position in a code.
_T: dict[str, dict[Lang, dict[Split, str]]] = {
    "defect": {
        "en": {
            "train": "What {D} is {S}?|Which {D} do you see {S}?|Name the {D} {S}.|Identify the {D}.|{TELL} the {D} {S}.|"
            "What is wrong with this {P}?|What {K}{D} is {S}?|What {K}{D} {SHOW} {S}?|Classify the {D} {S}.|"
            "What {K}{D} does this {P} have?|Which {K}{D} does the {P} show?|Inspect the {P} and {TELL} the {D}.|"
            "What is the {D}?|What's the {D} {S}?|{D} type?|Defect class?|Name of the {D}?|Look at the {P}: which {D} is it?|"
            "Is there a {D}, and which?|What {Ds} are {S}?|List the {Ds} {S}.|Which {Ds} {S}?|What can you find wrong {S}?|"
            "Does this {P} have a {D}? Name it.|What surface {D} is this?|Surface {D}?|Which {D} is this?|What {D} is this?|"
            "What defect is on this surface?|What is the name of the {D} {S}?|Check this {P}. What {D} does it have?|"
            "Diagnose this {P}.|{TELL} the {K}{D}.|Tell me what {D} this is.|What happened to this {P}?|Inspect this {P}.|"
            "Which {K}{D} is {S}?|{D}?|What is the defect type?|What's wrong {S}?|Anything wrong {S}? What?",
            "held_out": "Can you tell which {D} the {P} suffers from?|Please determine what {K}{D} we are looking at.|"
            "Which {D} would you report for this {P}?|The {P} was rejected. What {D} is visible {S}?|"
            "What sort of {D} has this {P} got?",
        },
        "zh": {
            "train": "{zS}有什么{zD}?|{zS}是什么{zD}?|这是什么{zD}?|请指出{zS}的{zD}。|{zD}类型是什么?|是哪种{zD}?|{zS}存在哪种{zD}?|"
            "识别{zS}的{zD}。|{zS}有哪些{zD}?|请说出{zD}名称。|该{zP}有什么{zK}{zD}?|属于哪一类{zD}?|检查这个{zP},有什么{zD}?|"
            "{zS}出了什么{zD}?|看图回答:有什么{zD}?|{zD}是什么?|图中{zD}属于什么类型?|请判断{zD}类别。|你看到什么{zD}?|"
            "表面有什么{zD}?|请告诉我{zS}的{zD}。|{zD}?|什么{zD}?|有没有{zD}?是什么?|{zS}的{zD}叫什么?|请检查并说明{zD}。",
            "held_out": "你能看出{zS}是哪一种{zD}吗?|请确认{zS}出现了什么{zD}。|检测结果:{zP}的{zD}是哪种?|帮我看看{zS}有什么{zD}。",
        },
    },
    "where": {
        "en": {
            "train": "Where is the {D}?|Where is it?|In which part of the {P} is the {D}?|Where do you see the {D}?|"
            "Locate the {D}.|Location of the {D}?|Which region contains the {D}?|Where {S} is the {D}?|{TELL} the position of the {D}.|"
            "In which cell of the grid is the {D}?|Which area is affected?|What is the location of the {D}?|Position of the {D}?|"
            "In which of the nine cells is the {D}?|Where exactly is the {D} located?|Where are the {Ds}?|Where is the {D} located?|"
            "Which part of the {P} has the {D}?|Find the {D}: where is it?|Point out where the {D} is.|Where's the {D}?|"
            "On a 3x3 grid, where is the {D}?|Which corner or side shows the {D}?|Tell me where the {D} is.",
            "held_out": "Whereabouts {S} can the {D} be found?|Describe the position of the {D} in a few words.|"
            "Which section of the {P} does the {D} lie in?|Could you show me where the {D} sits?",
        },
        "zh": {
            "train": "{zD}在哪里?|{zD}在什么位置?|{zD}位于哪里?|{zD}的位置?|请指出{zD}的位置。|{zD}在图中哪个区域?|{zD}在九宫格的哪一格?|"
            "哪个区域有{zD}?|{zS}的{zD}在哪儿?|定位{zD}。|{zD}在哪个方位?|{zD}在哪?|{zD}处于什么位置?|请给出{zD}所在的格子。|"
            "哪里有{zD}?|请说明{zD}的位置。|{zD}出现在哪里?",
            "held_out": "请问{zD}大概处在{zP}的什么地方?|能告诉我{zD}位于哪个方向吗?|{zD}落在哪个部位?",
        },
    },
    "box": {
        "en": {
            "train": "Give the box of the {D}.|Give the bounding box of the {D}.|Box of the {D}?|Bounding box?|Draw a box around the {D}.|"
            "What are the coordinates of the {D}?|Return the bounding box of the {D}.|Locate the {D} with a box.|"
            "Output the box coordinates of the {D}.|Detect the {D} and give its box.|bbox of the {D}|Where is the {D}? Give the box.|"
            "Where is the {D}? Answer with a bounding box.|Give the coordinates of the {D}.|Mark the {D} with a bounding box.|"
            "{TELL} the bounding box.|Which rectangle contains the {D}?|Provide the bbox.|Ground the {D}.",
            "held_out": "Please put a bounding box on the {D}.|I need the box coordinates for the {D}.|"
            "What bounding box encloses the {D}?|Could you return the coordinates of a box around the {D}?",
        },
        "zh": {
            "train": "给出{zD}的边界框。|{zD}的坐标是什么?|请用方框标出{zD}。|{zD}的框?|输出{zD}的坐标。|请给出{zD}的包围框。|框出{zD}。|"
            "返回{zD}的边界框坐标。|{zD}的位置坐标?|请检测{zD}并给出框。|{zD}的边界框?|用矩形框标注{zD}。|{zD}的检测框是什么?",
            "held_out": "我需要{zD}的边界框坐标。|请把{zD}用框圈起来,给出坐标。|{zD}外接矩形的坐标是多少?",
        },
    },
    "count": {
        "en": {
            "train": "How many {Ds} are there?|How many {Ds} do you see {S}?|Count the {Ds}.|Number of {Ds}?|How many {Ds} {S}?|"
            "What is the number of {Ds} {S}?|How many {Ds} can you find?|Count how many {Ds} are {S}.|{TELL} the number of {Ds}.|"
            "How many?|How many {Ds} does this {P} have?|Total {Ds}?",
            "held_out": "What is the total count of {Ds} on the {P}?|Can you count the {Ds} for me?|How many separate {Ds} are visible?",
        },
        "zh": {
            "train": "有几个{zD}?|有多少个{zD}?|{zS}有几处{zD}?|数一数{zD}。|{zD}的数量是多少?|{zS}有多少{zD}?|一共有几个{zD}?|{zD}数量?|"
            "请数出{zD}的个数。|几个{zD}?|{zD}总数?",
            "held_out": "请统计{zS}的{zD}个数。|总共能看到多少处{zD}?|{zD}共有几处?",
        },
    },
    "verdict": {
        "en": {
            "train": "Pass or fail?|Does this {P} pass?|Is this {P} OK? Answer pass or fail.|Should this {P} pass inspection?|Quality verdict?|"
            "Give the verdict: pass or fail.|Does the {P} pass or fail?|Pass/fail?|Is the {P} acceptable? pass or fail|Judge this {P}.|"
            "Decide: pass or fail.|Inspection result?|What is the verdict?|Would you pass this {P}?|Accept or reject: pass or fail?|"
            "Does it pass quality control?|QC result?|Verdict for this {P}?|{TELL} the verdict.",
            "held_out": "Would this {P} get through the inspection, pass or fail?|Is it a pass or a fail for this {P}?|"
            "What is your pass-or-fail decision?|Please judge whether the {P} passes.",
        },
        "zh": {
            "train": "合格还是不合格?|这个{zP}合格吗?|请判断是否合格。|质检结果?|检验结论是什么?|该{zP}能通过检验吗?|判定结果?|是否合格?|"
            "这个{zP}通过还是不通过?|质量判定:合格或不合格?|产品合格吗?|请给出判定。|能不能放行?合格还是不合格?|给出结论。",
            "held_out": "这件{zP}算合格品吗?|请告诉我检验是否合格。|按质量要求,{zP}合格与否?",
        },
    },
    "has": {
        "en": {
            "train": "Is there {x} {S}?|Do you see {x} {S}?|Is {x} visible?|Does this {P} have {x}?|Can you see {x}?|Does the {P} show {x}?|"
            "Is this {x}?|Any {x}?|Are there signs of {x}?|Is the {D} {x}?",
            "held_out": "Can {x} be seen {S}?|Would you say there is {x} {S}?|Has the {P} got {x}?",
        },
        "zh": {
            "train": "{zS}有{x}吗?|是否有{x}?|能看到{x}吗?|存在{x}吗?|这是{x}吗?|图中有没有{x}?|有{x}吗?|{zD}是{x}吗?|是不是{x}?",
            "held_out": "你觉得{zS}有{x}吗?|能不能看出{x}?|是否出现了{x}?",
        },
    },
    "clean": {
        "en": {
            "train": "Is there a {D} {S}?|Is there any {D}?|Any {Ds}?|Do you see any {D} {S}?|Does this {P} have a {D}?|Is the {P} damaged?|"
            "Are there any {Ds} {S}?|Is it defective?|Is anything wrong with the {P}?|Can you see any {Ds}?|Has this {P} a {D}?",
            "held_out": "Would you say this {P} has any {D}?|Can any {D} be found {S}?|Is this {P} defective in any way?",
        },
        "zh": {
            "train": "{zS}有{zD}吗?|有没有{zD}?|是否有{zD}?|存在{zD}吗?|能看到{zD}吗?|{zP}有{zD}吗?|这个{zP}是否损坏?|有任何{zD}吗?",
            "held_out": "你能发现{zS}有任何{zD}吗?|这个{zP}是不是有{zD}?|请问是否存在{zD}?",
        },
    },
    "material": {
        "en": {
            "train": "What is shown?|What {P} is this?|What material is this?|What is this?|What kind of {P} is it?|What object is {S}?|"
            "What is the material?|Which product is shown?|What are we looking at?|Name the object.",
            "held_out": "What does the {P} show?|Can you tell what object this is?|Which material do we see?",
        },
        "zh": {
            "train": "这是什么?|图中是什么?|这是什么材料?|是什么{zP}?|图里是什么东西?|材料是什么?|这是什么产品?|拍的是什么?",
            "held_out": "请问图中展示的是什么?|这张图拍的是什么东西?|是哪种材料?",
        },
    },
    "describe": {
        "en": {
            "train": "Describe the {P}.|Describe what you see.|Give a short description.|What do you see?|Describe this {P} in one sentence.|"
            "Summarize the inspection.|Write a short report.|Describe the {D} and where it is.|Describe.|Caption this {P}.",
            "held_out": "Please give me a brief description of the {P}.|Tell me about this {P}.|Explain what is visible {S}.",
        },
        "zh": {
            "train": "描述这张图片。|描述{zP}。|你看到了什么?|简单描述一下。|用一句话描述{zP}。|写一份简短的检验报告。|请描述{zD}及其位置。|图中有什么?",
            "held_out": "请简要说明{zP}的情况。|说说你看到的内容。|请描述一下画面。",
        },
    },
    "code": {
        "en": {
            "train": "Read the {CODE}.|What is the {CODE}?|What {CODE} is {LAB}?|{READ} the {CODE} {LAB}.|What does the {CODE} say?|"
            "{READ} the {CODE}.|What is printed {LAB}?|What text is {LAB}?|Read the text.|Which {CODE} do you see?|{CODE}?|OCR|"
            "What code is printed here?|Read the characters {LAB}.|What is written {LAB}?|Read this.|What does it say?|"
            "Read the label.|{READ} the text {LAB}.|Please {READ} the {CODE}.|What's the {CODE} {LAB}?|Read out the {CODE}.",
            "held_out": "Could you spell out the {CODE} {LAB}?|Which {CODE} has been printed on this label?|I need the {CODE} from this picture.|"
            "Tell me the exact {CODE} that you can read.",
        },
        "zh": {
            "train": "{zREAD}{zCODE}。|{zCODE}是什么?|{zCODE}是多少?|图中的{zCODE}是什么?|请{zREAD}{zCODE}。|标签上的{zCODE}是什么?|"
            "上面写的是什么?|印的是什么?|{zREAD}图中的文字。|{zREAD}标签上的{zCODE}。|{zCODE}?|这个{zCODE}怎么读?|读一下。|图上写着什么?",
            "held_out": "请把{zCODE}念出来。|我想知道标签上印的{zCODE}。|能看清{zCODE}吗?是什么?",
        },
    },
    "expiry": {
        "en": {
            "train": "What is the {EXP}?|Read the {EXP}.|When does it expire?|{READ} the {EXP}.|{READ} the {EXP} {LAB}.|{EXP}?|What date is {LAB}?|"
            "Until when is it good?|Which date is printed?|What's the {EXP} {LAB}?|Read the date.|Use by?",
            "held_out": "Until which date may this be used?|Could you read the {EXP} for me?|On what day does the product expire?",
        },
        "zh": {
            "train": "{zEXP}是什么时候?|{zREAD}{zEXP}。|什么时候过期?|{zEXP}是哪天?|{zEXP}?|请{zREAD}{zEXP}。|标签上的日期是什么?|{zEXP}到什么时候?",
            "held_out": "请问这个产品哪天到期?|帮我看一下{zEXP}。|可以用到哪一天?",
        },
    },
    "char": {
        "en": {"train": "What is character {n}?|Character {n} of the {CODE}?|Which character is at position {n}?",
               "held_out": "Tell me character number {n} of the {CODE}."},
        "zh": {"train": "第{n}个字符是什么?|{zCODE}的第{n}位是什么?", "held_out": "{zCODE}第{n}个是什么字符?"},
    },
    "length": {
        "en": {"train": "How many characters does the {CODE} have?|How long is the {CODE}?|Number of characters in the {CODE}?",
               "held_out": "Of how many characters does the {CODE} consist?"},
        "zh": {"train": "{zCODE}有几位?|{zCODE}有几个字符?", "held_out": "{zCODE}的长度是多少?"},
    },
    "reading": {
        "en": {
            "train": "What does the meter show?|Read the meter.|What number is shown?|Read the display.|What is the reading?|What value is displayed?|"
            "Which number do you see?|Read the number.|Which digit is shown?|What digit is this?|Reading of the dial?|What does the display say?",
            "held_out": "Which value can be read off the display?|Tell me the number on the meter.",
        },
        "zh": {
            "train": "仪表读数是多少?|读出数字。|显示的数字是多少?|读数?|显示的是什么数字?|表上的数是多少?|指针指向几?",
            "held_out": "请告诉我仪表的示数。|显示屏上是多少?",
        },
    },
}  # fmt: skip
TASKS = tuple(_T)

_BEFORE = {"en": ("Please: ", "Question: ", "Hello. ", "Hi! ", "Look carefully. ", "Inspector: ", "Please answer: "),
           "zh": ("请问,", "你好,", "请看图。", "问题:", "请回答:", "麻烦看一下,")}  # fmt: skip
_AFTER = {
    "en": (" Answer briefly.", " Be precise.", " Thanks.", " Answer in a few words.", " Please."),
    "zh": ("请简短回答。", "谢谢。", "请直接回答。", "简要回答。"),
}


def templates(task: str, lang: Lang, split: Split) -> list[str]:
    """The templates of one task, unfilled."""
    return [t for t in _T[task][lang][split].split("|") if t]



def question(task: str, lang: Lang, rng: random.Random, *, split: Split = "train", **given: str) -> str:
    """One wording of ``task``; ``given`` fills ``{x}`` and ``{n}``. Training wordings are also varied in
    case, final punctuation and politeness."""

    def fill(match: re.Match[str]) -> str:
        key = match[1]
        return given[key] if key in given else rng.choice(_SLOTS[key].split("|"))

    text = rng.choice(templates(task, lang, split))
    while _SLOT.search(text):
        text = _SLOT.sub(fill, text)
    text = text[0].upper() + text[1:]
    return _vary(text, lang, rng) if split == "train" else text


def _vary(text: str, lang: Lang, rng: random.Random) -> str:
    if rng.random() < 0.12:
        text = text.lower()
    if rng.random() < 0.12:
        text = text.rstrip("?.。?")
    if lang == "zh" and rng.random() < 0.5:
        text = text.replace("?", "\uff1f").replace(",", "\uff0c")
    if rng.random() < 0.08:
        text = rng.choice(_BEFORE[lang]) + text
    if rng.random() < 0.08:
        text = text + rng.choice(_AFTER[lang])
    return text


def say_defects(names: list[str], lang: Lang) -> str:
    """'scratch, pit' in the given order without repeats; 'no defect' for none."""
    unique = list(dict.fromkeys(names)) or [CLEAN]
    return ", ".join(unique) if lang == "en" else "、".join(DEFECTS_ZH[n] for n in unique)


def say_cells(cells: list[int], lang: Lang) -> str:
    """Nine-cell positions in reading order, without repeats."""
    table = CELLS if lang == "en" else CELLS_ZH
    return (", " if lang == "en" else "、").join(table[c] for c in sorted(set(cells)))


def say_box(box: tuple[float, float, float, float]) -> str:
    """``box`` = x1, y1, x2, y2 as shares of width and height → '(120,340),(260,480)': thousandths, in tens."""
    x1, y1, x2, y2 = (min(990, max(0, round(v * 100) * 10)) for v in box)
    return f"({x1},{y1}),({x2},{y2})"


def parse_box(text: str) -> tuple[float, float, float, float] | None:
    """The inverse of ``say_box``; None where the text holds no box."""
    found = re.search(r"\((\d+),\s*(\d+)\),\s*\((\d+),\s*(\d+)\)", text)
    return tuple(int(g) / 1000 for g in found.groups()) if found else None  # type: ignore[return-value]


def say_verdict(clean: bool, lang: Lang) -> str:
    """pass / fail."""
    word = "pass" if clean else "fail"
    return word if lang == "en" else VERDICTS_ZH[word]


def say_yes(yes: bool, lang: Lang) -> str:
    """yes / no."""
    word = "yes" if yes else "no"
    return word if lang == "en" else YES_NO_ZH[word]


def say_material(material: str, lang: Lang) -> str:
    """The material's name."""
    return material if lang == "en" else MATERIALS_ZH[material]


def describe(material: str, names: list[str], cells: list[int], lang: Lang) -> str:
    """One sentence: what, which defects, where (where it is known)."""
    if lang == "en":
        place = f" at the {say_cells(cells, lang)}" if cells and names else ""
        return f"A {material} with {say_defects(names, lang)}{place}."
    place = f",位于{say_cells(cells, lang)}" if cells and names else ""
    return f"{say_material(material, lang)},{say_defects(names, lang)}{place}。"
